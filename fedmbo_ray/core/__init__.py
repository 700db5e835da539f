"""What everything else stands on: errors, files, named components and their settings, random numbers."""
