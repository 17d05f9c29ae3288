// Colour operations on 8-bit images, with Pillow's arithmetic: the same bytes for grey and RGB
// images. Convention: in place. Of 2 and 4 channels the last is alpha and stays. One channel, or
// five and more, have no colour: saturation and hue leave them alone, and the grey value whose mean
// contrast() needs is the channel itself, or the mean of all.
#pragma once

#include "data/image.h"

namespace tessera::data {

// Blends with black, with the mean grey, with the grey image, with a smoothed image: 0 gives that
// image, 1 the original, above 1 extrapolates.
void brightness(Image& image, double factor);
void contrast(Image& image, double factor);
void saturation(Image& image, double factor);
void sharpness(Image& image, double factor);

// Turns the hue by a part of the circle, -0.5 to 0.5, through Pillow's 8-bit HSV.
void hue(Image& image, double turn);

// Keeps the highest `bits` of each value, 0 to 8.
void posterize(Image& image, int bits);
// Inverts the values that are not below the threshold.
void solarize(Image& image, double threshold);
void invert(Image& image);
// Stretches each channel to 0..255; flattens each channel's histogram.
void autocontrast(Image& image);
void equalize(Image& image);

}  // namespace tessera::data
