// The sizes that a configuration is refused by (models/config.h) against what models are really
// made of.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "config/config.h"
#include "exec/executor.h"
#include "models/model.h"

namespace tessera::run::model_size_test {
namespace {

TEST(ModelSize, ParametersAreCounted) {
  for (models::Preset row : models::presets())
    for (const char* pool : {"class", "mean"}) {
      row.config.pool = pool;
      double count = 0;
      for (const models::Param& p : models::parameters(row.config))
        count += p.buffer ? 0 : static_cast<double>(ir::elements(p.shape));
      EXPECT_EQ(models::parameter_count(row.config), count) << row.name << " " << pool;
    }
}

// The batch is so large that no weight is wider than what it makes.
TEST(ModelSize, NoTensorIsWiderThanTheWidest) {
  constexpr std::int64_t batch = 512;
  const plan::Target target = exec::target_of("cpu", 1);
  for (const char* name : {"vit_micro", "resnet_micro_cifar", "resnet18", "swin_micro"})
    for (const bool fuse : {true, false})
      for (const Goal goal : {Goal::predict, Goal::train}) {
        config::Config c;
        c.model = models::preset(name);
        if (c.model.family == "resnet") {
          c.model.layers = {1, 1, 1};
          c.model.width = 8;
          c.model.block = "bottleneck";
        }
        c.batch = {batch, batch, 1};
        c.run.fuse = fuse;
        std::int64_t widest = 0;
        for (const auto& value : compile(c, goal, {batch}, target).program.values)
          widest = std::max(widest, value.type.elements());
        EXPECT_LE(static_cast<double>(widest),
                  static_cast<double>(batch) * models::widest_tensor(c.model, fuse))
            << name << fuse;
      }
}

}  // namespace
}  // namespace tessera::run::model_size_test
