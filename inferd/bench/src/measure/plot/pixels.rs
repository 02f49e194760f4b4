//! A picture of points that plotters draws into, and its PNG.

use super::letters;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontTransform};
use std::convert::Infallible;

/// Points of a letter's edge for so much of a font's size.
const FONT_SIZE: f64 = 12.0;

/// Of the compressor, which has ten.
const COMPRESSION: u8 = 9;

/// A white picture of so many points.
pub(super) struct Pixels<'a> {
    size: (u32, u32),
    points: &'a mut Vec<u8>,
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl Pixels<'_> {
    /// Draws into `points`: three bytes a point, line by line.
    pub(super) fn new(points: &mut Vec<u8>, size: (u32, u32)) -> Pixels<'_> {
        *points = vec![255; (3 * size.0 * size.1) as usize];
        Pixels { size, points }
    }
}

/// The PNG of such a picture.
pub(super) fn png(points: &[u8], (width, height): (u32, u32)) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut part = |name: &[u8; 4], bytes: &[u8]| {
        let named = [name, bytes].concat();
        file.extend((bytes.len() as u32).to_be_bytes());
        file.extend(&named);
        file.extend(crc32fast::hash(&named).to_be_bytes());
    };
    // Eight bits of red, green and blue, not interlaced.
    part(b"IHDR", &[&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat());
    // Every line begins with how it was filtered: not at all.
    let lines: Vec<u8> = points.chunks(3 * width as usize).flat_map(|line| [&[0], line].concat()).collect();
    part(b"IDAT", &miniz_oxide::deflate::compress_to_vec_zlib(&lines, COMPRESSION));
    part(b"IEND", &[]);
    file
}

/// How many points wide a letter's point is.
fn scale(style: &impl BackendTextStyle) -> i32 {
    ((style.size() / FONT_SIZE).round() as i32).max(1)
}

impl DrawingBackend for Pixels<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, colour: BackendColor) -> Drawn {
        let (width, height) = self.size;
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return Ok(()) };
        if x < width && y < height {
            let place = 3 * (y * width + x) as usize;
            let (red, green, blue) = colour.rgb;
            for (point, new) in self.points[place..place + 3].iter_mut().zip([red, green, blue]) {
                *point = (f64::from(*point) * (1.0 - colour.alpha) + f64::from(new) * colour.alpha).round() as u8;
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let (width, height) = letters::size(text);
        let scale = scale(style) as u32;
        Ok((width as u32 * scale, height as u32 * scale))
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawn {
        let scale = scale(style);
        let (width, height) = letters::size(text);
        let (width, height) = (width as i32 * scale, height as i32 * scale);
        let left = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Right => -width,
            HPos::Center => -width / 2,
        };
        let top = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Bottom => -height,
            VPos::Center => -height / 2,
        };
        let (turn, colour) = (style.transform(), style.color());
        for (column, row) in letters::points(text) {
            for (dx, dy) in (0..scale).flat_map(|dx| (0..scale).map(move |dy| (dx, dy))) {
                let (across, down) = (left + column as i32 * scale + dx, top + row as i32 * scale + dy);
                let (across, down) = FontTransform::transform(&turn, across, down);
                self.draw_pixel((x + across, y + down), colour)?;
            }
        }
        Ok(())
    }
}
