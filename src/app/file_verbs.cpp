#include <memory>
#include <optional>

#include "app/arguments.h"
#include "app/verbs.h"
#include "config/reader.h"
#include "verbs/verbs.h"

namespace tessera::app {

void add_ckpt_verb(CLI::App& app, char**, bool& json, int& code) {
  const auto given = std::make_shared<run::CkptOptions>();
  CLI::App* ckpt_verb =
      app.add_subcommand("ckpt", "look at, prove, export and compare checkpoints");
  ckpt_verb->require_subcommand(1);
  auto ckpt_sub = [&](const char* name, const char* help, const char* path,
                      int (*call)(const run::CkptOptions&)) {
    CLI::App* sub = ckpt_verb->add_subcommand(name, help);
    sub->add_flag("--json", json, "print one JSON document on stdout");
    sub->add_option(path, given->path, "a run folder or a checkpoint (RUN/ckpt/step-N)")
        ->required();
    sub->callback([given, call, &json, &code] {
      given->json = json;
      code = call(*given);
    });
    return sub;
  };
  ckpt_sub("ls", "the checkpoints of a run: step, epoch, bytes, when, valid, best", "RUN",
           run::ckpt_list);
  ckpt_sub("verify", "check every hash; exit code 4 when one does not fit", "RUN|CKPT",
           run::ckpt_verify);
  CLI::App* diff_verb =
      ckpt_sub("diff", "tensor by tensor; exit code 0 equal, 1 different", "A", run::ckpt_diff);
  diff_verb
      ->add_option("B", given->other,
                   "the other one; weight files and exported folders are taken too")
      ->required();
  CLI::App* export_verb =
      ckpt_sub("export", "weights as a folder that others read", "RUN|CKPT", run::ckpt_export);
  export_verb->add_option("--out", given->out, "folder to write")->required()->type_name("DIR");
  export_verb
      ->add_option("--naming", given->naming,
                   "whose names and configuration: tessera | torchvision | timm | hf")
      ->check(CLI::IsMember({"tessera", "torchvision", "timm", "hf"}));
  export_verb->add_option("--dtype", given->dtype, "f32 | f64; with --onnx f32 | bf16 | f16")
      ->check(CLI::IsMember({"f32", "f64", "bf16", "f16"}));
  export_verb->add_flag("--onnx", given->onnx, "the forward program as model.onnx (opset 17)");
  export_verb->add_flag("--preprocess", given->preprocess,
                        "with --onnx: the graph reads u8 pixels and normalises them itself");
  export_verb->add_flag(
      "--best", given->best,
      "of a run folder: the checkpoint with the best test top-1 instead of the newest");
}

// data get | verify | stats. The options live as long as the callbacks.
void add_data_verb(CLI::App& app, char**, bool& json, int& code) {
  CLI::App* data_verb = app.add_subcommand("data", "fetch a data set, check it, or describe it");
  data_verb->require_subcommand(1);
  const auto sub = [&](const char* name, const char* help) {
    CLI::App* verb = data_verb->add_subcommand(name, help);
    verb->add_flag("--json", json, "print one JSON document on stdout");
    return verb;
  };
  auto get = std::make_shared<run::DataGetOptions>();
  CLI::App* get_verb = sub("get", "download, check and unpack; goes on where it was interrupted");
  get_verb->add_option("NAME", get->name, "cifar10 | cifar100")->required();
  get_verb->add_option("--out", get->out, "folder to put it in (default: data)")->type_name("DIR");
  get_verb->add_option("--url", get->url, "another address of the same archive")->type_name("URL");
  get_verb->add_option("--sha256", get->sha256, "checksum of another archive at that address")
      ->type_name("HEX");
  get_verb->add_option("--md5", get->md5, "the same where only an MD5 is known")->type_name("HEX");
  get_verb->callback([get, &json, &code] {
    get->json = json;
    code = run::data_get(*get);
  });

  const auto reading = [&](const char* name, const char* help,
                           int (*act)(const config::Config&, bool)) {
    CLI::App* verb = sub(name, help);
    auto spec = std::make_shared<std::string>();
    auto arguments = std::make_shared<ConfigArguments>();
    verb->add_option("SPEC", *spec, "cifar10:DIR | cifar100:DIR | folder:DIR | synthetic...")
        ->required();
    verb->add_option("--set", arguments->sets, "change one key: --set data.val_fraction=0.2")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    verb->callback([=, &json, &code] {
      std::vector<config::Override> overrides;
      for (const std::string& set : arguments->sets) overrides.push_back(config::from_set(set));
      overrides.push_back({.key = "data.source", .value = *spec, .origin = *spec, .is_flag = true});
      code = act(config::load(std::nullopt, overrides, config::Purpose::other), json);
    });
  };
  reading("verify", "read every image; exit code 3 when one is bad", &run::data_verify);
  reading("stats", "images per class, sizes, mean and deviation per channel", &run::data_stats);
}

}  // namespace tessera::app
