// Where the pixels of an augmented image come from: crops, padding, mirrors, and affine maps as
// Pillow computes them. Convention: what is drawn is a function of the Draw alone; what is moved is
// a function of the numbers drawn, so both are tested alone.
#pragma once

#include "data/augment_draw.h"
#include "data/image.h"
#include "data/resample.h"

namespace tessera::data {

enum class Padding { zero, reflect };

// A part of an image of `scale` of its area and of this width / height, log-uniform; after ten that
// do not fit, the largest in the middle. exp, log and sqrt only lead to whole numbers of pixels, so
// that a last bit of them matters to nobody.
Region draw_resized_crop(Draw draw, int height, int width, double scale_low, double scale_high,
                         double ratio_low, double ratio_high);

// Where a crop of the original size begins in an image that was padded by `pad` on each side,
// counted from the original's corner: -pad..pad.
Region draw_padded_crop(Draw draw, int height, int width, int pad);

// A coordinate outside of 0 .. size-1 mirrored at the border pixels (which are not repeated), as
// often as needed.
int reflected(int at, int size);

// `from` may reach outside of the image, where the padding is.
void crop(const Image& image, const Region& from, Padding padding, Image& out);
void mirror(Image& image);

// out(x, y) = in(a x + b y + c, d x + e y + f) at the pixels' centres; nearest pixel, 0 outside.
struct Affine {
  double a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;
};
void transform(Image& image, const Affine& map);

Affine shear_x(double slope);
Affine shear_y(double slope);
Affine translate(int right, int down);
// Counter-clockwise around the centre.
Affine rotate(double degrees, int height, int width);

}  // namespace tessera::data
