"""What happens on the side: timers, files, storage, the clock, the profile."""
