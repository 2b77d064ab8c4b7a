"""Routes of the REST API: one module for each part, thin over `srm.service.views.views`."""
