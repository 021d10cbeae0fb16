"""One run of a method over clients' data, and the models that runs leave."""
