// `rego`: the policy language alone, used as people know it from other tools.
#include "policy/rego/batch.hpp"
#include "programs/rego/commands.hpp"

#include <iostream>
#include <string>

namespace openshell::rego_program {

int batch() {
  std::ios::sync_with_stdio(false);
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::cout << policy::rego::answer_case(line) << std::endl;
  }
  return 0;
}

}  // namespace openshell::rego_program

int main(int argc, char** argv) {
  using namespace openshell::rego_program;
  std::string problem;
  const auto arguments = parse_arguments(argc, argv, problem);
  if (arguments) {
    if (arguments->command == "eval") return evaluate(*arguments);
    if (arguments->command == "test") return run_tests(*arguments);
    if (arguments->command == "batch" && arguments->operands.empty()) return batch();
    if (arguments->command == "help" || arguments->command == "--help" || arguments->command == "-h") {
      std::cout << kUsage;
      return 0;
    }
    problem = "unknown command " + arguments->command;
  }
  std::cerr << "rego: " << problem << '\n' << kUsage;
  return 2;
}
