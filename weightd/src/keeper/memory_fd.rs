//! Whether a descriptor is memory that can be kept for somebody else.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use std::os::fd::BorrowedFd;

/// Why this descriptor is not kept. Host memory must be sealed against resizing, so that who maps it later cannot be
/// hurt by who gave it. Memory of a GPU is a handle of its driver, which has one size for ever.
pub(super) fn objection(fd: BorrowedFd<'_>) -> Option<String> {
    match fcntl(fd, FcntlArg::F_GET_SEALS) {
        Ok(bits) => {
            let fixed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
            let missing = !SealFlag::from_bits_retain(bits).contains(fixed);
            missing.then(|| "it is not sealed against shrinking and growing".to_owned())
        }
        Err(Errno::EINVAL) => match fstat(fd) {
            Ok(stat) => {
                let kind = SFlag::from_bits_retain(stat.st_mode) & SFlag::S_IFMT;
                let ordinary = [SFlag::S_IFREG, SFlag::S_IFDIR, SFlag::S_IFSOCK, SFlag::S_IFIFO, SFlag::S_IFBLK];
                ordinary.contains(&kind).then(|| "it is no memory".to_owned())
            }
            Err(errno) => Some(errno.desc().to_owned()),
        },
        Err(errno) => Some(errno.desc().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_gpu::HostRange;
    use ds4_units::Bytes;
    use std::os::fd::AsFd;

    #[test]
    fn sealed_memory_is_kept_and_files_and_pipes_are_not() {
        let sealed = HostRange::create("kept", Bytes(10)).unwrap().seal().unwrap();
        assert_eq!(objection(sealed.fd()), None);
        let open = nix::sys::memfd::memfd_create("open", nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING).unwrap();
        assert!(objection(open.as_fd()).unwrap().contains("not sealed"));
        let file = tempfile::tempfile().unwrap();
        assert!(objection(file.as_fd()).is_some());
        let (pipe, _end) = std::io::pipe().unwrap();
        assert!(objection(pipe.as_fd()).is_some());
        // A driver's handle is a character device, as this is.
        assert_eq!(objection(std::fs::File::open("/dev/null").unwrap().as_fd()), None);
    }
}
