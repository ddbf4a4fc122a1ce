"""The hostile worker as another user than the bot's, without any rights."""

from tests.fakes.hostile_worker import become_nobody, main

if __name__ == "__main__":
    become_nobody()
    main()
