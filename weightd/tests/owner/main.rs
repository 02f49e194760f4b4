//! The owner as a real process: command line, life, broker, workers, use of the machine.

mod attaching;
mod broker;
mod command_line;
mod keeper;
mod kit;
mod lifecycle;
mod resources;
