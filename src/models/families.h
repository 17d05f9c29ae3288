// The model families: one name per family. Each has a description (models/description/<name>.cpp:
// its keys, presets and checks), a program (models/<name>.cpp: its parameters and forward pass) and
// names in other libraries' files.
#pragma once

#define TESSERA_FAMILIES(X) X(vit) X(swin) X(resnet)
