"""Routes of the REST API: one thin module per part over `srm.service.views.views`."""
