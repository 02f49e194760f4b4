//! Graphs: work that was collected once and is started as a whole.

use super::device::Gpu;
use super::driver::check;
use super::error::CudaError;
use super::leaks;
use super::stream::Stream;
use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUresult};
use std::mem::MaybeUninit;
use std::ptr;

/// Collected work. [`Stream::capture`] makes one.
#[derive(Debug)]
pub struct Graph {
    graph: CUgraph,
    gpu: Gpu,
}

/// Collected work, made ready to start. What it touches (memory, functions) must outlive it: the graph holds
/// addresses only.
#[derive(Debug)]
pub struct GraphExec {
    exec: CUgraphExec,
    gpu: Gpu,
}

// SAFETY: a graph may be used from any thread, though from one at a time: `Graph` is not Sync.
unsafe impl Send for Graph {}
// SAFETY: as above; `GraphExec` is not Sync.
unsafe impl Send for GraphExec {}

impl Graph {
    /// Takes over a graph that the driver has just made.
    pub(super) fn own(gpu: &Gpu, graph: CUgraph) -> Graph {
        Graph { graph, gpu: gpu.clone() }
    }

    /// Makes it ready to start. Takes some microseconds a node.
    pub fn instantiate(&self) -> Result<GraphExec, CudaError> {
        self.gpu.bind()?;
        let mut exec = ptr::null_mut();
        // SAFETY: `exec` is writable for the call, `self` keeps the graph alive. `GraphExec` destroys it once.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, self.graph, 0) };
        check("cuGraphInstantiate", code)?;
        Ok(GraphExec { exec, gpu: self.gpu.clone() })
    }
}

impl GraphExec {
    /// Puts all of it into `stream`. Does not block.
    ///
    /// # Safety
    /// Everything its nodes touch is still there, and nothing else on the device writes what they read or touches
    /// what they write, unless it is ordered before or after by streams and events.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: both handles are alive; the caller vouches for what the nodes touch.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec, stream.raw()) })
    }

    /// Takes the arguments of `graph`, which must have the same nodes; false if it has not, and then nothing changed.
    pub fn update(&mut self, graph: &Graph) -> Result<bool, CudaError> {
        self.gpu.bind()?;
        let mut info = MaybeUninit::<CUgraphExecUpdateResultInfo>::zeroed();
        // SAFETY: `info` is writable for the call; both graphs are alive.
        match unsafe { sys::cuGraphExecUpdate_v2(self.exec, graph.graph, info.as_mut_ptr()) } {
            CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE => Ok(false),
            code => check("cuGraphExecUpdate", code).map(|()| true),
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: taken over once in `own`, destroyed once here; instantiated graphs do not need it.
        let result = self.gpu.bind().and_then(|()| check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(self.graph) }));
        leaks::count(result);
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // SAFETY: made once in `instantiate`, destroyed once here. The driver lets a launch that is under way end first.
        let code = || check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(self.exec) });
        leaks::count(self.gpu.bind().and_then(|()| code()));
    }
}
