"""What people are shown of a model's text: its words, without reasoning and without markup."""
