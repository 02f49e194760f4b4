//! One table of exit codes for every ds4 binary. Operators and service files depend on the numbers.

use std::process::ExitCode;

macro_rules! exit_codes {
    ($($name:ident = $code:literal, $meaning:literal;)*) => {
        /// Why a ds4 process ended. The discriminant is the process exit code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Exit {
            $(#[doc = $meaning] $name = $code,)*
        }

        impl Exit {
            /// Every code, in numerical order.
            pub const ALL: &'static [Exit] = &[$(Exit::$name,)*];

            /// What the code tells an operator.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Exit::$name => $meaning,)*
                }
            }
        }
    };
}

exit_codes! {
    Ok = 0, "finished, or stopped as asked";
    Failed = 1, "an error that has no code of its own";
    Usage = 2, "a flag, value or setting is wrong; nothing was started";
    ModelFile = 3, "a model file is missing, damaged, unsupported or changed while it was read";
    Memory = 4, "not enough memory or file descriptors, found before loading or while loading";
    Device = 5, "the GPU or its driver cannot be used, or failed";
    LockHeld = 6, "another owner holds the lock or serves the socket";
    StaleState = 7, "a manifest of an earlier owner is in the way; its message says what to do";
    Aborted = 8, "a signal stopped the process before it was ready";
    OwnerLoading = 10, "status: the owner is still loading";
    OwnerDraining = 11, "status: the owner is shutting down";
    OwnerStale = 12, "status: the manifest names an owner that is gone";
    NoOwner = 13, "status: there is neither a manifest nor a socket";
    OwnerUnreachable = 14, "status: the owner's socket does not answer";
    ImportRefused = 20, "the worker could not attach to the owner";
    OwnerLost = 21, "the owner went away while the worker was attaching";
    WeightsMismatch = 22, "the owner's weights are not the weights of the worker's model";
    Listen = 23, "the address to listen on cannot be used";
    Engine = 24, "the engine failed and the process cannot go on";
    KvDamaged = 30, "kv verify: a stored conversation is damaged";
    KvMiss = 31, "why-miss: nothing stored would be used for the request";
    HostGuard = 75, "the host's memory guard refused or stopped the process";
    Interrupted = 130, "stopped by Ctrl-C";
}

impl Exit {
    /// The number the shell sees.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Lines for the end of a `--help` text, one per code in `codes`.
    pub fn help(codes: &[Exit]) -> String {
        let mut text = String::from("Exit codes:\n");
        for code in codes {
            text.push_str(&format!("  {:>3}  {}\n", code.code(), code.meaning()));
        }
        text
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }

    #[test]
    fn published_codes_keep_their_numbers() {
        let published = [(Exit::Usage, 2), (Exit::Memory, 4), (Exit::LockHeld, 6), (Exit::StaleState, 7)];
        for (exit, code) in published {
            assert_eq!(exit.code(), code);
        }
        assert_eq!(Exit::help(&[Exit::HostGuard]).lines().nth(1).unwrap().trim_start().split(' ').next(), Some("75"));
    }
}
