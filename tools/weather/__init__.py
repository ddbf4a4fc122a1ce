"""`get_weather`: a place is found by its name, then its weather is told, both by Open-Meteo."""
