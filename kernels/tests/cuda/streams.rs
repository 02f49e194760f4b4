//! Streams of the token before: taken from rows and banks, left in banks, bit for bit.

use crate::kit::{Pair, rows, up};
use ds4_kernels::Backend;
use ds4_kernels::bank::{BankSizes, StreamsPlace};
use ds4_kernels::kv_rows::PackedRows;

#[test]
fn banks_keep_the_streams_of_their_last_token_and_give_them_to_the_next() {
    let place = StreamsPlace { offset: 32, floats: 4 * 260 };
    let sizes = BankSizes { block: 16, recurrent: 64 + place.floats * 4 };
    let mut pair = Pair::<PackedRows>::new(3, sizes);
    for (index, counts) in [[3, 1, 0], [1, 1, 5], [1, 130, 1], [2, 0, 1]].iter().enumerate() {
        let streams = rows(7 + index as u64, counts.iter().sum(), place.floats);
        pair.step(counts, |cpu, host, cuda, device| {
            let on_device = up(cuda, &streams);
            for given in [true, false] {
                let want = cpu.take_streams(host, place, given.then_some(&streams));
                let got = cuda.take_streams(device, place, given.then_some(&on_device));
                assert_eq!(cuda.download(got).unwrap(), want, "step {index}, rows given: {given}");
            }
            cpu.leave_streams(host, place, &streams);
            cuda.leave_streams(device, place, &on_device);
        });
    }
    for (host, device) in pair.host.iter().zip(&pair.device) {
        assert_eq!(device.recurrent().unwrap(), host.recurrent());
    }
}

#[test]
fn values_are_added_and_reshaped() {
    let cuda = &*crate::kit::cuda();
    let cpu = crate::kit::cpu();
    let (mut want, others) = (rows(1, 9, 260), rows(2, 9, 260));
    let mut got = up(cuda, &want);
    cpu.add(&mut want, &others);
    cuda.add(&mut got, &up(cuda, &others));
    let got = cuda.download(cuda.reshaped(got, 130)).unwrap();
    assert_eq!(got, cpu.reshaped(want, 130));
}
