// `rego`: the policy language alone, as people know it from other tools.
#include "policy/rego/batch.hpp"

#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "batch") return 2;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::cout << openshell::policy::rego::answer_case(line) << '\n' << std::flush;
  }
  return 0;
}
