"""The calls that add operators to an application, by kind; :class:`riprap.graph.application.Application` has them all."""
