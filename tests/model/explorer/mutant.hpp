#pragma once

namespace openshell::model {

/// Which mutation of the code is on; 0: none. In openshell_model_mutants the sources have them all, each behind `mutant(n)`.
inline int& mutant_switch() {
  static int number = 0;
  return number;
}
inline bool mutant(int number) { return mutant_switch() == number; }
inline void set_mutant(int number) { mutant_switch() = number; }

}  // namespace openshell::model
