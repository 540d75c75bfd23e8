"""`python -m kernel_new` is `kernel-new`."""

from kernel_new.entry import main

main()
