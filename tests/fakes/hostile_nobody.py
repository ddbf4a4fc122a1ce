"""The hostile worker as another user than the bot's, without any rights."""

from tests.fakes.hostile_worker import become_nobody, leave_descriptors_open, main

if __name__ == "__main__":
    leave_descriptors_open()
    become_nobody()
    main()
