"""The routes of the REST API: one module for each part, thin over :mod:`srm.service.views`."""
