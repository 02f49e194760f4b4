//! A driver for GPUs that there are on paper only: host code runs with it as it does with NVIDIA's, and nothing is computed.
//! Memory has addresses and no bytes, and is counted; kernels are looked up in their cubins; a launch must give a kernel the
//! arguments and the shared memory that it was compiled for and allowed. Device 0 is a Hopper, device 1 a Blackwell.
//!
//! Not part of a crate: `mod.rs` compiles it to a library of its own, `libcuda.so`. Only what `ds4-gpu` calls is here, and it
//! calls it as NVIDIA's documentation says: references stand for pointers that it makes of references.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

const OK: u32 = 0;
const INVALID: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NOT_FOUND: u32 = 500;

const PAGE: u64 = 2 << 20;
const MEMORY_LEN: u64 = 140 << 30;
/// Shared memory that a kernel may have without asking.
const SHARED: u32 = 48 << 10;

/// A device as its attributes tell it.
struct Paper {
    name: &'static CStr,
    capability: (c_int, c_int),
    multiprocessors: c_int,
    shared: c_int,
    l2: c_int,
}

const DEVICES: [Paper; 2] = [
    Paper { name: c"Hopper on paper", capability: (9, 0), multiprocessors: 132, shared: 227 << 10, l2: 50 << 20 },
    Paper { name: c"Blackwell on paper", capability: (12, 0), multiprocessors: 188, shared: 99 << 10, l2: 96 << 20 },
];

/// A kernel as its cubin describes it.
pub struct Kernel {
    parameters: Vec<usize>,
    shared: AtomicU32,
}

#[derive(Default)]
struct Memory {
    /// Addresses that were given out, ever.
    given: u64,
    /// Physical memory: its length by its handle, which is an address of its own.
    taken: BTreeMap<u64, u64>,
    /// What is mapped: its length by its address.
    mapped: BTreeMap<u64, u64>,
    host: HashMap<usize, Layout>,
}

fn memory() -> MutexGuard<'static, Memory> {
    static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(Mutex::default);
    MEMORY.lock().expect("no call panics with it")
}

impl Memory {
    fn addresses(&mut self, len: u64) -> u64 {
        let start = (1 << 40) + self.given;
        self.given += len.next_multiple_of(PAGE);
        start
    }

    fn free(&self) -> u64 {
        MEMORY_LEN - self.taken.values().sum::<u64>()
    }

    /// Whether all these bytes have memory: what was allocated with its address, or what is mapped side by side.
    fn is_there(&self, address: u64, len: u64) -> bool {
        let end = address + len;
        let is_allocated = |(start, own): (&u64, &u64)| *start <= address && end <= start + own;
        if self.taken.range(..=address).next_back().is_some_and(is_allocated) {
            return true;
        }
        let mut reached = address;
        for (start, own) in self.mapped.range(..end) {
            if (*start..start + own).contains(&reached) {
                reached = start + own;
            }
        }
        reached >= end
    }

    fn take(&mut self, len: u64, handle: &mut u64) -> u32 {
        if len > self.free() {
            return OUT_OF_MEMORY;
        }
        *handle = self.addresses(len);
        self.taken.insert(*handle, len);
        OK
    }
}

fn give<T>(out: &mut T, value: T) -> u32 {
    *out = value;
    OK
}

fn if_true(is_right: bool) -> u32 {
    if is_right { OK } else { INVALID }
}

/// Calls that succeed and have nothing to say.
macro_rules! silent {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> u32 {
            OK
        }
    )* };
}

silent! {
    cuInit cuCtxSetCurrent cuCtxSynchronize cuDevicePrimaryCtxRelease_v2
    cuStreamSynchronize cuStreamQuery cuStreamDestroy_v2 cuStreamWaitEvent cuStreamBeginCapture_v2
    cuEventRecord cuEventSynchronize cuEventQuery cuEventDestroy_v2
    cuGraphDestroy cuGraphExecDestroy cuGraphLaunch
    cuMemAddressFree cuMemSetAccess
    cuMemsetD8_v2 cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2
    cuModuleUnload
}

/// Calls whose result is a handle that nobody looks into.
macro_rules! handles {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(handle: &mut usize) -> u32 {
            give(handle, 1)
        }
    )* };
}

handles! { cuStreamCreate cuEventCreate cuDevicePrimaryCtxRetain cuGraphInstantiateWithFlags }

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamEndCapture(_stream: usize, graph: &mut usize) -> u32 {
    give(graph, 1)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDriverGetVersion(version: &mut c_int) -> u32 {
    give(version, 13_000)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorName(code: u32, name: &mut *const c_char) -> u32 {
    let own = if code == OUT_OF_MEMORY { c"CUDA_ERROR_OUT_OF_MEMORY" } else { c"REFUSED_ON_PAPER" };
    give(name, own.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetCount(count: &mut c_int) -> u32 {
    give(count, DEVICES.len() as c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGet(device: &mut c_int, ordinal: c_int) -> u32 {
    give(device, ordinal)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetName(name: &mut [c_char; 128], _len: c_int, device: c_int) -> u32 {
    let own = DEVICES[device as usize].name.to_bytes();
    name.iter_mut().zip(own).for_each(|(to, &from)| *to = from as c_char);
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid_v2(uuid: &mut [u8; 16], device: c_int) -> u32 {
    give(uuid, [device as u8; 16])
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetAttribute(value: &mut c_int, attribute: u32, device: c_int) -> u32 {
    let paper = &DEVICES[device as usize];
    let known = match attribute {
        // Unified addressing, virtual memory, file descriptors as handles.
        41 | 102 | 103 => 1,
        16 => paper.multiprocessors,
        // It does not share the host's memory.
        18 => 0,
        38 => paper.l2,
        75 => paper.capability.0,
        76 => paper.capability.1,
        97 => paper.shared,
        _ => return INVALID,
    };
    give(value, known)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAllocationGranularity(len: &mut usize, _properties: usize, _option: u32) -> u32 {
    give(len, PAGE as usize)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetInfo_v2(free: &mut usize, total: &mut usize) -> u32 {
    (*free, *total) = (memory().free() as usize, MEMORY_LEN as usize);
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressReserve(address: &mut u64, len: usize) -> u32 {
    give(address, memory().addresses(len as u64))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemCreate(handle: &mut u64, len: usize) -> u32 {
    memory().take(len as u64, handle)
}

/// A mapping holds its memory: what is released is mapped nowhere.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> u32 {
    if_true(memory().taken.remove(&handle).is_some())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(address: u64, len: usize, _offset: usize, handle: u64) -> u32 {
    let (mut memory, len) = (memory(), len as u64);
    let before = memory.mapped.range(..address + len).next_back();
    let is_right = before.is_none_or(|(start, own)| start + own <= address) && memory.taken.get(&handle) == Some(&len);
    if is_right {
        memory.mapped.insert(address, len);
    }
    if_true(is_right)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(address: u64, len: usize) -> u32 {
    if_true(memory().mapped.remove(&address) == Some(len as u64))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAlloc_v2(address: &mut u64, len: usize) -> u32 {
    memory().take(len as u64, address)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    cuMemRelease(address)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostAlloc(address: &mut *mut u8, len: usize) -> u32 {
    let layout = Layout::from_size_align(len, 4096).expect("a length that memory has");
    // SAFETY: a caller of the driver asks for at least one byte.
    *address = unsafe { alloc_zeroed(layout) };
    memory().host.insert(*address as usize, layout);
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(address: *mut u8) -> u32 {
    let layout = memory().host.remove(&(address as usize));
    if let Some(layout) = layout {
        // SAFETY: `cuMemHostAlloc` allocated it with this layout, and it was still noted.
        unsafe { dealloc(address, layout) };
    }
    if_true(layout.is_some())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(address: u64, _value: u8, len: usize) -> u32 {
    if_true(memory().is_there(address, len as u64))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize) -> u32 {
    let (memory, len) = (memory(), len as u64);
    if_true(memory.is_there(to, len) && memory.is_there(from, len))
}

/// Memory on paper holds zeros.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoH_v2(to: *mut u8, _from: u64, len: usize) -> u32 {
    // SAFETY: a caller of the driver has that many bytes there.
    unsafe { to.write_bytes(0, len) };
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadData(module: &mut *const u8, image: *const u8) -> u32 {
    give(module, image)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetFunction(kernel: &mut &'static Kernel, module: *const u8, name: *const c_char) -> u32 {
    // SAFETY: a caller of the driver gives a name with its NUL.
    let name = unsafe { CStr::from_ptr(name) }.to_str().expect("kernels have names of letters");
    match parameters(&Cubin(module), name) {
        Some(parameters) => give(kernel, Box::leak(Box::new(Kernel { parameters, shared: SHARED.into() }))),
        None => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetParamInfo(kernel: &Kernel, index: usize, _offset: usize, size: &mut usize) -> u32 {
    kernel.parameters.get(index).map_or(INVALID, |&own| give(size, own))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(kernel: &Kernel, attribute: u32, value: u32) -> u32 {
    const MAX_DYNAMIC_SHARED: u32 = 8;
    if attribute == MAX_DYNAMIC_SHARED {
        kernel.shared.store(value, Ordering::Relaxed);
    }
    OK
}

/// The beginning of the driver's `CUlaunchConfig`.
#[repr(C)]
pub struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernelEx(config: &Config, kernel: &Kernel) -> u32 {
    let grid_fits = config.grid.iter().all(|&blocks| blocks > 0) && config.grid[1].max(config.grid[2]) <= 0xffff;
    let threads: u32 = config.block.iter().product();
    if_true(grid_fits && (1..=1024).contains(&threads) && config.shared <= kernel.shared.load(Ordering::Relaxed))
}

/// A whole cubin: an ELF file of 64 bits.
struct Cubin(*const u8);

impl Cubin {
    /// The number of so many bytes at a place in it.
    fn number(&self, at: usize, bytes: usize) -> usize {
        // SAFETY: places come from the file's own headers, and a caller of the driver gives a whole file.
        (0..bytes).rev().fold(0, |value, byte| value << 8 | usize::from(unsafe { *self.0.add(at + byte) }))
    }

    /// Where the section of this name begins, and its length.
    fn section(&self, name: &str) -> Option<(usize, usize)> {
        let (sections, each, count) = (self.number(40, 8), self.number(58, 2), self.number(60, 2));
        let header = |index: usize| sections + index * each;
        let names = self.number(header(self.number(62, 2)) + 24, 8);
        let is_named = |&at: &usize| {
            let own = names + self.number(at, 4);
            name.bytes().chain([0]).enumerate().all(|(i, byte)| self.number(own + i, 1) == usize::from(byte))
        };
        let found = (0..count).map(header).find(is_named)?;
        Some((self.number(found + 24, 8), self.number(found + 32, 8)))
    }
}

/// Sizes of a kernel's parameters, in order: its section `.nv.info.NAME` has an entry for each.
fn parameters(cubin: &Cubin, kernel: &str) -> Option<Vec<usize>> {
    const WITH_LENGTH: usize = 4;
    const PARAMETER: usize = 0x17;
    let (start, len) = cubin.section(&format!(".nv.info.{kernel}"))?;
    let (mut at, mut sizes) = (start, BTreeMap::new());
    while at < start + len {
        let (form, kind) = (cubin.number(at, 1), cubin.number(at + 1, 1));
        if (form, kind) == (WITH_LENGTH, PARAMETER) {
            sizes.insert(cubin.number(at + 8, 2), cubin.number(at + 12, 4) >> 18);
        }
        at += 4 + if form == WITH_LENGTH { cubin.number(at + 2, 2) } else { 0 };
    }
    Some(sizes.into_values().collect())
}
