"""What sensors share: the tick, Dagster's runs by tag, and what is shown of a training. None of these is a sensor."""
