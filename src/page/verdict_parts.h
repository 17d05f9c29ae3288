// The sentences of each kind of part; verdict.cpp puts the part's title before them. Convention: at
// least one of its runs is done.
#pragma once

#include <string>
#include <vector>

#include "page/verdict.h"

namespace tessera::report {

std::vector<std::string> scaling_verdict(const Part& part);
std::vector<std::string> batch_verdict(const Part& part);
std::vector<std::string> technique_verdict(const Part& part);
std::vector<std::string> accuracy_verdict(const Part& part);
std::vector<std::string> layers_verdict(const Part& part);
// How far losses that should agree are apart at most, and in which point; `most` 0 names none.
std::string loss_sentence(const Point& base, const std::string& base_name, double most,
                          const std::string& whose);
// A single run has nothing to be compared with, so this says what it took and what came out.
std::vector<std::string> run_verdict(const RunRecord& run);

}  // namespace tessera::report
