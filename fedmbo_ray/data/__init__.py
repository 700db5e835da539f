"""What clients hold: data sets, how they are fetched and spread, and how clients draw from them."""
