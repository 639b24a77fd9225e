"""The calls that add operators to an application, by kind; :class:`riprap.graph.Application` has them all."""
