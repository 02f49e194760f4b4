#![allow(unsafe_code)]
use crate::gpu;
use ds4_gpu::DeviceMemory;
use ds4_gpu::cuda::{CudaError, DeviceBuffer, Event, PinnedBuffer, Stream, leaked_handles};
use ds4_units::Bytes;

#[test]
fn bytes_come_back_as_they_went_and_nothing_goes_past_the_end() {
    let gpu = gpu();
    let buffer = DeviceBuffer::zeroed(&gpu, Bytes(10)).unwrap();
    buffer.upload(3, &[1, 2, 3]).unwrap();
    let mut back = [9; 10];
    buffer.download(0, &mut back).unwrap();
    assert_eq!(back, [0, 0, 0, 1, 2, 3, 0, 0, 0, 0]);
    let past_end = CudaError::PastEnd { len: Bytes(10), offset: 8, count: 3 };
    assert_eq!(buffer.upload(8, &[0; 3]), Err(past_end.clone()));
    assert_eq!(buffer.download(8, &mut [0; 3]), Err(past_end));
    assert!(buffer.read(u64::MAX, &mut [0; 3]).is_err());
    assert_eq!(DeviceBuffer::new(&gpu, Bytes(0)).unwrap().len(), Bytes(0));
}

#[test]
fn streams_copy_in_order_and_across_each_other_by_events() {
    let gpu = gpu();
    let (up, down) = (Stream::new(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    let len = 1 << 20;
    let mut from = PinnedBuffer::new(&gpu, Bytes(len)).unwrap();
    let mut to = PinnedBuffer::new(&gpu, Bytes(len)).unwrap();
    from.as_mut_slice().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 31 / 7) as u8);
    let buffer = DeviceBuffer::new(&gpu, Bytes(len)).unwrap();
    let uploaded = Event::new(&gpu).unwrap();
    // SAFETY: both pinned buffers and the device buffer live until both streams have been waited for.
    unsafe {
        buffer.upload_async(&up, 0, &from, 0..len as usize).unwrap();
        up.record(&uploaded).unwrap();
        down.wait(&uploaded).unwrap();
        buffer.download_async(&down, 0, &mut to, 0..len as usize).unwrap();
    }
    down.synchronize().unwrap();
    assert!(up.is_idle().unwrap() && uploaded.is_done().unwrap());
    assert_eq!(to.as_slice(), from.as_slice());
}

#[test]
fn a_captured_copy_runs_as_often_as_it_is_launched_and_not_before() {
    let gpu = gpu();
    let stream = Stream::new(&gpu).unwrap();
    let mut from = PinnedBuffer::new(&gpu, Bytes(4)).unwrap();
    let buffer = DeviceBuffer::zeroed(&gpu, Bytes(4)).unwrap();
    let graph = stream
        // SAFETY: everything lives until the last launch has been waited for.
        .capture(|| unsafe { buffer.upload_async(&stream, 0, &from, 0..4) })
        .unwrap();
    let exec = graph.instantiate().unwrap();
    let mut back = [9; 4];
    buffer.download(0, &mut back).unwrap();
    assert_eq!(back, [0; 4]);
    for value in [1, 2] {
        from.as_mut_slice().fill(value);
        // SAFETY: as above, and nobody else touches the buffer.
        unsafe { exec.launch(&stream) }.unwrap();
        stream.synchronize().unwrap();
        buffer.download(0, &mut back).unwrap();
        assert_eq!(back, [value; 4]);
    }
}

#[test]
fn a_capture_that_fails_leaves_the_stream_usable() {
    let gpu = gpu();
    let stream = Stream::new(&gpu).unwrap();
    let error = stream.capture(|| Err::<(), _>(CudaError::NoDriver)).unwrap_err();
    assert_eq!(error, CudaError::NoDriver);
    stream.synchronize().unwrap();
}

#[test]
fn what_was_made_can_be_dropped_in_any_order() {
    let before = leaked_handles();
    let gpu = gpu();
    let stream = Stream::new(&gpu).unwrap();
    let buffer = DeviceBuffer::new(&gpu, Bytes(64)).unwrap();
    let graph = stream.capture(|| Ok::<(), CudaError>(())).unwrap();
    let exec = graph.instantiate().unwrap();
    drop(gpu);
    drop(graph);
    drop(stream);
    drop(exec);
    drop(buffer);
    assert_eq!(leaked_handles(), before);
}
