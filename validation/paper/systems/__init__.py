"""Systems that the paper compares with joint sampling, each behind the interface of `validation.paper.systems.base`."""
