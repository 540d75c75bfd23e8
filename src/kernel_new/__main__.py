"""`python -m kernel_new` is `kernel-new`."""

from kernel_new.cli import main

main()
