"""Applications that come with Riprap, written as a user would write them."""
