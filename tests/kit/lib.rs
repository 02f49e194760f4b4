//! What whole-process tests and the demo stand on: real owners and workers as child processes.
