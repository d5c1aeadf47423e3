"""Before the first step: initial weights, their import and export, and the memory that a training needs."""
