"""Records in, tables out: a run is a folder, and whatever is in it can be read without the lab."""
