// The name of a buffer is for people: passes go by its role.
#include <gtest/gtest.h>

#include "transforms/tiny_vit.h"

namespace tessera::transforms::roles_test {
namespace {

using ir::Role;

// Every input and output gets a name that says nothing.
Program renamed(Program p) {
  std::map<std::string, std::string> names;
  for (ir::Input& in : p.inputs) {
    const std::string now = "buffer" + std::to_string(names.size());
    names[in.name] = now;
    in.name = now;
  }
  for (ir::Output& o : p.outputs)
    if (!o.updates.empty()) o.updates = names.at(o.updates);
  return p;
}

std::vector<ir::Type> types(const Program& p) {
  std::vector<ir::Type> out;
  for (const ir::Value& value : p.values) out.push_back(value.type);
  return out;
}

TEST(Roles, AnAverageIsCutLikeStateWhateverItIsCalled) {
  const Program loss = test::vit_loss(test::tiny_model(), ir::DType::f32, 4);
  const std::vector<Bucket> list = test::vit_buckets(test::tiny_model(), ir::DType::f32);
  const Layout zero1{.dp = 2, .zero = 1};
  for (const Role set : {Role::weights, Role::average}) {
    const Program p = buckets(loss, list, set);
    const Program named = strategy(p, zero1), unnamed = strategy(renamed(p), zero1);
    EXPECT_EQ(types(named), types(unnamed));
    for (const Bucket& bucket : list) {
      const ir::Type& type = unnamed.type(unnamed.input(set, bucket.name)->var);
      EXPECT_EQ(ir::place_on(type, 0).kind, set == Role::average ? ir::Place::S : ir::Place::R);
    }
  }
}

TEST(Roles, GradientsAreFoundWhateverTheyAreCalled) {
  const ir::DType f32 = ir::DType::f32;
  Program p = autodiff(test::vit_loss(test::tiny_model(), f32, 2));
  int gradients = 0;
  for (ir::Output& o : p.outputs)
    if (o.role == Role::gradient) o.name = "d" + std::to_string(gradients++);
  EXPECT_GT(gradients, 10);
  const std::vector<Bucket> list = test::vit_buckets(test::tiny_model(), f32);
  for (const bool apart : {false, true}) {
    const Program step = optimizer(buckets(accumulate({p, p}, apart), list), {}, list);
    ir::verify(step);
    for (const ir::Output& o : step.outputs) EXPECT_NE(o.role, Role::gradient);
    for (const Bucket& bucket : list)
      for (const Role role : {Role::weights, Role::first_moment, Role::second_moment})
        EXPECT_NE(step.input(role, bucket.name), nullptr) << name(role) << " of " << bucket.name;
  }
}

}  // namespace
}  // namespace tessera::transforms::roles_test
