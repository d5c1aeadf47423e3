"""Scripts as users write them, for the tests of the contract."""
