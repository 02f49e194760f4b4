//! Curves over the first column: how fast prompts are read and answers written.

use crate::error::BenchError;
use crate::table::Table;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

const SIZE: (u32, u32) = (1000, 420);
const COLOURS: [RGBColor; 6] = [BLUE, RED, RGBColor(0, 130, 60), RGBColor(150, 80, 0), MAGENTA, BLACK];

/// Column and caption of each half.
const HALVES: [(&str, &str); 2] = [("prefill_tps", "reading, tokens/s"), ("gen_tps", "writing, tokens/s")];

/// Draws every table as a curve in both halves.
pub(crate) fn write(path: &Path, tables: &[(String, Table)]) -> Result<(), BenchError> {
    draw(path, tables).map_err(|error| BenchError::Write { path: path.to_owned(), cause: error.to_string() })
}

fn draw(path: &Path, tables: &[(String, Table)]) -> Result<(), Box<dyn Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        for (half, (column, caption)) in area.split_evenly((1, HALVES.len())).iter().zip(HALVES) {
            curves(half, column, caption, tables)?;
        }
        area.present()?;
    }
    std::fs::write(path, svg)?;
    Ok(())
}

fn curves(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    column: &str,
    caption: &str,
    tables: &[(String, Table)],
) -> Result<(), Box<dyn Error>> {
    let curves: Vec<_> = tables.iter().map(|(name, table)| (name, table.curve(table.first_column(), column))).collect();
    let most = |of: fn(&(f64, f64)) -> f64| curves.iter().flat_map(|(_, points)| points).map(of).fold(1.0, f64::max);
    let (right, top) = (most(|point| point.0), most(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right * 1.02, 0.0..top * 1.1)?;
    let below = tables.first().map_or("", |(_, table)| table.first_column());
    chart.configure_mesh().x_desc(below.replace('_', " ")).draw()?;
    for ((name, points), colour) in curves.into_iter().zip(COLOURS.into_iter().cycle()) {
        chart
            .draw_series(LineSeries::new(points, &colour))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    Ok(())
}
