// Benchmarks are held against these: the peak of the element type, and products of other libraries.
#include <gtest/gtest.h>

#include <set>

#include "app/binary.h"

namespace tessera::test::bench_test {
namespace {

// Numbers of bf16 and int8 are against the peak of the type that they are multiplied in.
TEST(Bench, PeaksAreThoseOfTheType) {
  const auto bench = [](const std::string& arguments) {
    const Result r =
        run("bench " + arguments + " --model vit_micro --threads 1 --repeats 1 --json");
    EXPECT_EQ(r.code, 0) << r.err;
    return json::parse(r.out);
  };
  EXPECT_EQ(bench("infer --batch 2")["peak_dtype"], "f32");
  const json low = bench("infer --batch 2 --dtype bf16");
  EXPECT_EQ(low["peak_dtype"], "bf16");
  EXPECT_EQ(bench("infer --batch 2 --set precision.quantise=int8")["peak_dtype"], "int8");
  const json ops = bench("ops --batch 2 --dtype bf16");
  EXPECT_TRUE(ops["peaks"].contains("bf16") && ops["peaks"].contains("f32")) << ops["peaks"];
  EXPECT_EQ(ops["peaks"]["bf16"], ops["peak_gflops"]);
}

TEST(Bench, ProductsAreATable) {
  for (const std::string how : {"--dtype f32", "--dtype bf16", "--set precision.quantise=int8"}) {
    const Result r = run("bench gemm --json --batch 1 --threads 1 --repeats 1 " + how);
    ASSERT_EQ(r.code, 0) << r.err;
    const json table = json::parse(r.out);
    const bool bytes = table["dtype"] == "int8";
    EXPECT_EQ(table["rows"].size(), bytes ? 14u : 42u);
    EXPECT_EQ(table["models"].size(), 3u);
    EXPECT_EQ(table["peak_dtype"], table["dtype"]);
    std::set<std::string> products;
    for (const json& row : table["rows"]) {
      products.insert(row["product"]);
      const double flops =
          2 * row["m"].get<double>() * row["n"].get<double>() * row["k"].get<double>();
      EXPECT_NEAR(row["gflops"].get<double>() * row["ms"].get<double>() * 1e6 / flops, 1, 1e-9);
      EXPECT_EQ(row["peers"].size(), table["peers"].size());
      EXPECT_GT(row["peak_gflops"].get<double>(), 0);
      EXPECT_NEAR(row["of_peak"].get<double>() * row["peak_gflops"].get<double>() /
                      row["gflops"].get<double>(),
                  1, 1e-9);  // of one run
    }
    EXPECT_EQ(products, bytes ? std::set<std::string>{"forward"}
                              : (std::set<std::string>{"forward", "dx", "dw"}));
  }
  const Result some = run("bench gemm --batch 1 --threads 1 --repeats 1 --filter 'vit_b_16 qkv'");
  EXPECT_NE(some.out.find("vit_b_16 qkv dw"), std::string::npos) << some.out << some.err;
  EXPECT_EQ(some.out.find("mlp_1"), std::string::npos) << some.out;
  const Result wide = run("bench gemm --dtype f64");
  EXPECT_EQ(wide.code, 2);
  EXPECT_NE(wide.err.find("bench gemm multiplies f32, bf16 and int8"), std::string::npos);
}

TEST(Bench, AFilterThatFitsNoProductIsRefused) {
  const Result r = run("bench gemm --filter nothing");
  EXPECT_EQ(r.code, 2) << r.err;
  EXPECT_NE(r.err.find("no product has \"nothing\" in its name"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace tessera::test::bench_test
