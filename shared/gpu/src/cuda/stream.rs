//! Streams: work on the device in order.

use super::device::Gpu;
use super::driver::check;
use super::error::CudaError;
use super::event::Event;
use super::graph::Graph;
use super::leaks;
use cudarc::driver::sys::{self, CUresult, CUstream, CUstream_flags_enum, CUstreamCaptureMode_enum};
use std::ptr;
use std::sync::Arc;

/// A stream: what is put into it runs on the device one after the other, beside other streams. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Stream {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    stream: CUstream,
    gpu: Gpu,
}

// SAFETY: a stream handle may be used from any thread; the driver locks inside. `Gpu` is Send and Sync.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Stream {
    /// A new stream, which does not wait for the legacy default stream.
    pub fn new(gpu: &Gpu) -> Result<Stream, CudaError> {
        gpu.bind()?;
        let mut stream = ptr::null_mut();
        let flags = CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` is writable for the call; a context is current. `Inner` destroys it once.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(Stream { inner: Arc::new(Inner { stream, gpu: gpu.clone() }) })
    }

    /// Its device.
    pub fn gpu(&self) -> &Gpu {
        &self.inner.gpu
    }

    /// Blocks until everything in it has ended. A kernel's fault shows here.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.gpu().bind()?;
        // SAFETY: `self` keeps the stream alive.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw()) })
    }

    /// Whether everything in it has ended. Does not block.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.gpu().bind()?;
        // SAFETY: `self` keeps the stream alive.
        match unsafe { sys::cuStreamQuery(self.raw()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Lets what follows in this stream wait until `event` has happened. Does not block.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.gpu().bind()?;
        // SAFETY: both handles are kept alive by their values for the call; the driver keeps what it needs beyond it.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw(), event.raw(), 0) })
    }

    /// Lets `event` happen when everything put into this stream so far has ended. Does not block.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        self.gpu().bind()?;
        // SAFETY: as in `wait`.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event.raw(), self.raw()) })
    }

    /// Collects what `work` puts into this stream, instead of running it. Other threads must leave the stream alone
    /// meanwhile. Nothing that blocks on the device may be called from `work`.
    pub fn capture<E: From<CudaError>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        self.gpu().bind()?;
        let mode = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: `self` keeps the stream alive. `Capture` ends the capture whatever `work` does.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.raw(), mode) })?;
        let mut capture = Capture { stream: self, is_open: true };
        work()?;
        Ok(capture.end()?)
    }

    /// The driver's handle, valid while `self` lives.
    pub(super) fn raw(&self) -> CUstream {
        self.inner.stream
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: made in `Stream::new`, destroyed once here. The driver lets work that is in it end first.
        let result =
            self.gpu.bind().and_then(|()| check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.stream) }));
        leaks::count(result);
    }
}

/// A capture that is under way.
struct Capture<'s> {
    stream: &'s Stream,
    is_open: bool,
}

impl Capture<'_> {
    fn end(&mut self) -> Result<Graph, CudaError> {
        self.is_open = false;
        let mut graph = ptr::null_mut();
        // SAFETY: `graph` is writable for the call and the stream is alive; a capture on it was begun on this thread.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.stream.raw(), &mut graph) })?;
        Ok(Graph::own(self.stream.gpu(), graph))
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // What was collected before the error or panic is thrown away; an error here says that it is gone already.
            let _ = self.end();
        }
    }
}
