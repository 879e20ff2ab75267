"""From pass prices to rates and money."""
