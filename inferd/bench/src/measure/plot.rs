//! Curves over the first column: how fast prompts are read and answers written.

mod letters;
mod pixels;

use crate::error::BenchError;
use crate::table::Table;
use pixels::Pixels;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::path::{Path, PathBuf};

const SIZE: (u32, u32) = (1000, 420);
/// A PNG has so many points for each of these lengths.
const POINTS: u32 = 2;
const COLOURS: [RGBColor; 6] = [BLUE, RED, RGBColor(0, 130, 60), RGBColor(150, 80, 0), MAGENTA, BLACK];

/// Column and caption of each half.
const HALVES: [(&str, &str); 2] = [("prefill_tps", "reading, tokens/s"), ("gen_tps", "writing, tokens/s")];

/// How a picture is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

/// A file for a picture, whose ending says how it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    path: PathBuf,
    format: Format,
}

impl std::str::FromStr for Picture {
    type Err = String;

    fn from_str(text: &str) -> Result<Picture, String> {
        let path = PathBuf::from(text);
        let format = match path.extension().and_then(|ending| ending.to_str()) {
            Some("svg") => Format::Svg,
            Some("png") => Format::Png,
            _ => return Err("the file's name has to end in .svg or .png".into()),
        };
        Ok(Picture { path, format })
    }
}

/// Draws every table as a curve in both halves.
pub(crate) fn write(picture: &Picture, tables: &[(String, Table)]) -> Result<(), BenchError> {
    let path: &Path = &picture.path;
    let drawn = drawn(picture.format, tables).and_then(|bytes| Ok(std::fs::write(path, bytes)?));
    drawn.map_err(|error| BenchError::Write { path: path.to_owned(), cause: error.to_string() })
}

fn drawn(format: Format, tables: &[(String, Table)]) -> Result<Vec<u8>, Box<dyn Error>> {
    match format {
        Format::Svg => {
            let mut svg = String::new();
            draw(SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), 1, tables)?;
            Ok(svg.into_bytes())
        }
        Format::Png => {
            let size = (POINTS * SIZE.0, POINTS * SIZE.1);
            let mut points = Vec::new();
            draw(Pixels::new(&mut points, size).into_drawing_area(), POINTS, tables)?;
            Ok(pixels::png(&points, size))
        }
    }
}

fn draw<B>(area: DrawingArea<B, Shift>, unit: u32, tables: &[(String, Table)]) -> Result<(), Box<dyn Error>>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    for (half, (column, caption)) in area.split_evenly((1, HALVES.len())).iter().zip(HALVES) {
        curves(half, unit, (column, caption), tables)?;
    }
    area.present()?;
    Ok(())
}

fn curves<B>(
    area: &DrawingArea<B, Shift>,
    unit: u32,
    (column, caption): (&str, &str),
    tables: &[(String, Table)],
) -> Result<(), Box<dyn Error>>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let curves: Vec<_> = tables.iter().map(|(name, table)| (name, table.curve(table.first_column(), column))).collect();
    let most = |of: fn(&(f64, f64)) -> f64| curves.iter().flat_map(|(_, points)| points).map(of).fold(1.0, f64::max);
    let (right, top) = (most(|point| point.0), most(|point| point.1));
    let font = |size: u32| ("sans-serif", unit * size);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, font(16))
        .margin(10 * unit)
        .x_label_area_size(36 * unit)
        .y_label_area_size(56 * unit)
        .build_cartesian_2d(0.0..right * 1.02, 0.0..top * 1.1)?;
    let below = tables.first().map_or("", |(_, table)| table.first_column());
    chart.configure_mesh().label_style(font(12)).x_desc(below.replace('_', " ")).draw()?;
    for ((name, points), colour) in curves.into_iter().zip(COLOURS.into_iter().cycle()) {
        let line = colour.stroke_width(unit);
        chart
            .draw_series(LineSeries::new(points, line))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16 * unit as i32, y)], line));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::LowerRight).label_font(font(12)).legend_area_size(22 * unit);
    labels.background_style(WHITE).border_style(BLACK).draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Cell;

    fn run(rates: &[f64]) -> Table {
        let mut table = Table::begin(&["ctx_tokens", "prefill_tps", "gen_tps"]);
        for (index, &rate) in rates.iter().enumerate() {
            table.add(vec![
                Cell::count(2048 * (index as u64 + 1)),
                Cell::maybe(Some(rate), 2),
                Cell::maybe(Some(rate), 2),
            ]);
        }
        table
    }

    #[test]
    fn a_png_shows_every_curve_in_its_colour_and_what_the_axes_mean() {
        let tables = [("before".to_owned(), run(&[40.0, 30.0])), ("after".to_owned(), run(&[80.0, 90.0]))];
        let file = drawn(Format::Png, &tables).unwrap();
        let (width, height) = (POINTS * SIZE.0, POINTS * SIZE.1);
        let word = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
        // Eight bytes that say what the file is; then parts: length, name, contents and a check over name and contents.
        let (mut at, mut parts) = (8, Vec::new());
        while at < file.len() {
            let len = word(at) as usize;
            assert_eq!(word(at + 8 + len), crc32fast::hash(&file[at + 4..at + 8 + len]));
            parts.push((&file[at + 4..at + 8], &file[at + 8..at + 8 + len]));
            at += 12 + len;
        }
        let names: Vec<&[u8]> = parts.iter().map(|part| part.0).collect();
        assert_eq!((&file[1..4], &names[..]), (&b"PNG"[..], &[&b"IHDR"[..], b"IDAT", b"IEND"][..]));
        assert_eq!((word(16), word(20)), (width, height));
        let lines = miniz_oxide::inflate::decompress_to_vec_zlib(parts[1].1).unwrap();
        let line = 3 * width as usize;
        assert_eq!(lines.len(), (line + 1) * height as usize);
        let points: Vec<u8> = lines.chunks(line + 1).flat_map(|line| &line[1..]).copied().collect();
        let count = |colour: RGBColor, columns: std::ops::Range<usize>| {
            let lines = points.chunks(line);
            let place = lines.flat_map(|line| line.chunks(3).skip(columns.start).take(columns.len()));
            place.filter(|point| *point == [colour.0, colour.1, colour.2]).count()
        };
        let middle = width as usize / 2;
        for half in [0..middle, middle..2 * middle] {
            assert!(count(BLUE, half.clone()) > 500 && count(RED, half.clone()) > 500, "two lines in {half:?}");
            assert!(count(BLACK, half.clone()) > 2000, "letters in {half:?}");
        }
        assert!(count(WHITE, 0..2 * middle) > points.len() / 3 * 8 / 10);
    }

    #[test]
    fn the_ending_says_what_is_drawn() {
        assert_eq!("a/b.png".parse::<Picture>().unwrap().format, Format::Png);
        assert_eq!("a/b.svg".parse::<Picture>().unwrap().format, Format::Svg);
        for wrong in ["a/b", "a/b.pdf", ".png"] {
            assert!(wrong.parse::<Picture>().unwrap_err().contains(".svg or .png"));
        }
    }
}
