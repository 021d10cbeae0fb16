"""A page about one run that a privacy officer can read and sign; made by `securefl report`."""
