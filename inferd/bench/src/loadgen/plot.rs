//! Two small curves: which share of requests saw their first token, and which share of tokens came, within a time.

use crate::error::LoadgenError;
use crate::summary::{Latencies, Summary};
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

const SIZE: (u32, u32) = (900, 360);

/// Draws both distributions side by side.
pub(crate) fn write(path: &Path, summary: &Summary) -> Result<(), LoadgenError> {
    draw(path, summary).map_err(|error| LoadgenError::Write { path: path.to_owned(), cause: error.to_string() })
}

fn draw(path: &Path, summary: &Summary) -> Result<(), Box<dyn Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let halves = area.split_evenly((1, 2));
        curve(&halves[0], "first token", &summary.first_token)?;
        curve(&halves[1], "between tokens", &summary.between_tokens)?;
        area.present()?;
    }
    std::fs::write(path, svg)?;
    Ok(())
}

fn curve(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    name: &str,
    latencies: &Latencies,
) -> Result<(), Box<dyn Error>> {
    let points = points(latencies);
    let longest = points.last().map_or(1.0, |point| point.0).max(1e-3);
    let mut chart = ChartBuilder::on(area)
        .caption(name, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..longest * 1.02, 0.0..1.0)?;
    chart.configure_mesh().x_desc("milliseconds").y_desc("share within").draw()?;
    chart.draw_series(LineSeries::new(points, &BLUE))?;
    Ok(())
}

/// Steps of the cumulative distribution: milliseconds, and the share that took no longer.
fn points(latencies: &Latencies) -> Vec<(f64, f64)> {
    let all = latencies.all();
    let share = |count: usize| count as f64 / all.len() as f64;
    let step = |(index, latency): (usize, &std::time::Duration)| {
        let at = latency.as_secs_f64() * 1e3;
        [(at, share(index)), (at, share(index + 1))]
    };
    all.iter().enumerate().flat_map(step).collect()
}
