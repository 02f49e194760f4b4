#![allow(unsafe_code)]
use crate::{CUBINS, gpu};
use ds4_gpu::cuda::{
    Access, Args, CudaError, DeviceBuffer, Gpu, Launch, Mapping, PhysAlloc, Stream, VaRange, leaked_handles,
};
use ds4_gpu::{DeviceMemory, Memory};
use ds4_units::Bytes;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

fn filled(gpu: &Gpu, value: u8) -> (Arc<PhysAlloc>, Mapping) {
    let memory = Arc::new(PhysAlloc::create(gpu, gpu.granularity()).unwrap());
    let mapping = Mapping::alone(memory.clone(), Access::ReadWrite).unwrap();
    mapping.upload(0, &vec![value; gpu.granularity().index()]).unwrap();
    (memory, mapping)
}

fn byte(mapping: &Mapping, offset: u64) -> u8 {
    let mut byte = [0];
    mapping.read(offset, &mut byte).unwrap();
    byte[0]
}

#[test]
fn memory_is_created_filled_exported_imported_and_mapped() {
    let gpu = gpu();
    let (memory, mapping) = filled(&gpu, 7);
    let fd = memory.export().unwrap();
    let imported = PhysAlloc::import(&gpu, fd.as_fd(), memory.len()).unwrap();
    drop((mapping, memory, fd));
    let mapping = Mapping::alone(Arc::new(imported), Access::ReadOnly).unwrap();
    assert_eq!(byte(&mapping, mapping.len().0 - 1), 7);
    let shared = Memory::Device(Arc::new(mapping));
    assert_eq!(&*shared.read(3..5).unwrap(), [7, 7]);
}

// Four times as much as there is goes through: nothing stays behind.
#[test]
fn memory_is_free_when_the_last_of_descriptor_handle_and_mapping_is_gone() {
    let before = leaked_handles();
    let gpu = gpu();
    let granule = gpu.granularity();
    let size = Bytes(gpu.memory().unwrap().total.0 / 8 / granule.0 * granule.0);
    for round in 0..32 {
        let memory = Arc::new(PhysAlloc::create(&gpu, size).unwrap());
        let fd = memory.export().unwrap();
        let mapping = Mapping::alone(memory.clone(), Access::ReadWrite).unwrap();
        match round % 3 {
            0 => drop((memory, mapping, fd)),
            1 => drop((fd, memory, mapping)),
            _ => drop((mapping, fd, memory)),
        }
    }
    assert_eq!(leaked_handles(), before);
}

#[test]
fn addresses_stay_while_memory_behind_them_comes_and_goes() {
    let gpu = gpu();
    let granule = gpu.granularity();
    let range = VaRange::reserve(&gpu, Bytes(4 * granule.0)).unwrap();
    let (first, _kept) = filled(&gpu, 1);
    let (second, _kept_too) = filled(&gpu, 2);
    let one = Mapping::map(&range, granule, first.clone(), Access::ReadOnly).unwrap();
    assert_eq!(one.address(), range.address().offset(granule.0));
    // The place is taken.
    assert!(Mapping::map(&range, granule, second.clone(), Access::ReadOnly).is_err());
    let two = Mapping::map(&range, Bytes(2 * granule.0), second.clone(), Access::ReadOnly).unwrap();
    assert_eq!((byte(&one, 0), byte(&two, 0)), (1, 2));
    one.unmap().unwrap();
    let instead = Mapping::map(&range, granule, second, Access::ReadOnly).unwrap();
    assert_eq!((byte(&instead, 0), byte(&two, 0)), (2, 2));
    let past_end = Mapping::map(&range, Bytes(4 * granule.0), first, Access::ReadOnly).unwrap_err();
    assert!(matches!(past_end, CudaError::PastEnd { .. }), "{past_end}");
}

#[test]
fn an_imported_piece_cannot_be_exported_again_nor_mapped_longer_than_it_is() {
    let gpu = gpu();
    let (memory, _mapping) = filled(&gpu, 1);
    let fd = memory.export().unwrap();
    let imported = PhysAlloc::import(&gpu, fd.as_fd(), memory.len()).unwrap();
    assert!(matches!(imported.export(), Err(CudaError::Call { .. })));
    let too_long = PhysAlloc::import(&gpu, fd.as_fd(), Bytes(2 * memory.len().0)).unwrap();
    assert!(Mapping::alone(Arc::new(too_long), Access::ReadOnly).is_err());
}

#[test]
fn a_descriptor_of_something_else_is_refused() {
    let gpu = gpu();
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(PhysAlloc::import(&gpu, file.as_fd(), gpu.granularity()).is_err());
}

/// Tells this program that it is the process whose kernel writes where it must not, and to which descriptor's memory.
const WRITES_TO: &str = "DS4_TEST_WRITES_TO";
/// What the child says before it ends.
const FAULTED: &str = "the kernel's fault:";

/// Lets a kernel write a byte to memory that is mapped to be read, and gives what comes of it.
fn write_with_a_kernel(gpu: &Gpu, to: &Mapping) -> CudaError {
    let kernel = ds4_gpu::cuda::load(gpu, CUBINS, "weights").unwrap().function("split_bytes").unwrap();
    let (from, table) = (DeviceBuffer::zeroed(gpu, Bytes(64)).unwrap(), DeviceBuffer::zeroed(gpu, Bytes(64)).unwrap());
    let stream = Stream::new(gpu).unwrap();
    // One row of one tile of one byte.
    let args = Args::new().with(from.address()).with(1u32).with(to.address()).with(table.address());
    let args = args.with([1u32; 4]).with(0u64).with(0u32);
    // SAFETY: all memory lives until the stream has been waited for; that the target must not be written is what is
    // tried here.
    unsafe { kernel.launch(&stream, &Launch::new(1, 32), &args) }.unwrap();
    stream.synchronize().expect_err("the write went through")
}

// A fault ends everything of its process on the device, so it happens in a child, on the parent's memory.
#[test]
fn a_kernel_that_writes_to_read_only_memory_ends_its_own_process_on_the_device_and_changes_nothing() {
    let this_test =
        "sharing::a_kernel_that_writes_to_read_only_memory_ends_its_own_process_on_the_device_and_changes_nothing";
    let gpu = gpu();
    let read_only = |fd: BorrowedFd<'_>| {
        let memory = PhysAlloc::import(&gpu, fd, gpu.granularity()).unwrap();
        Mapping::alone(Arc::new(memory), Access::ReadOnly).unwrap()
    };
    if let Some(number) = std::env::var_os(WRITES_TO) {
        let number = number.to_str().unwrap().parse().unwrap();
        // SAFETY: the parent left this descriptor open for us and nobody closes it.
        let mapping = read_only(unsafe { BorrowedFd::borrow_raw(number) });
        let error = write_with_a_kernel(&gpu, &mapping);
        assert!(error.is_fault(), "{error}");
        assert!(mapping.read(0, &mut [0]).is_err(), "the process has lost the device");
        println!("{FAULTED} {error}");
        // Dropping handles of a lost device would only count leaks.
        std::process::exit(0);
    }
    let (memory, mapping) = filled(&gpu, 7);
    let fd = memory.export().unwrap().into_fd();
    let worker = read_only(fd.as_fd());
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let child = child.args([this_test, "--exact", "--nocapture"]).env(WRITES_TO, fd.as_raw_fd().to_string());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(FAULTED), "{text}{}", String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    assert_eq!((byte(&mapping, 0), byte(&worker, 0)), (7, 7));
    gpu.synchronize().unwrap();
}
