"""The trainers, one algorithm a file: linear models, FedNL's family, networks."""
