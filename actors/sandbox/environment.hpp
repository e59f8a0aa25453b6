// The environment of workload processes: built from nothing, layer by layer, later layers win. Pure. R-86..R-89, section "environment of
// children".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isolation/boundary/launch_material.hpp"

namespace openshell::sandbox {

inline constexpr std::string_view kDefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
inline constexpr std::size_t kMaxEnvironmentBytes = 1'048'576;  ///< of one process, all layers: names, values and two bytes each
inline constexpr std::string_view kCaDirectory = "/run/openshell-supervisor-ca";

struct EnvironmentInputs {
  const boundary::Environment* image = nullptr;           ///< of the image
  const boundary::Environment* user = nullptr;            ///< template, then spec
  const boundary::Environment* provider = nullptr;        ///< placeholders and static values
  std::vector<std::pair<std::string, std::string>> exec;  ///< of one exec request; part of the user layer
  bool main = false;
  bool terminal = false;
  std::string home;  ///< home_of()
  std::string user_name;
  std::string shell;   ///< the image's login shell; empty: none
  bool trust = false;  ///< the interception CA is installed: the trust variables are set
};

/// "KEY=value" lines, sorted by key.
[[nodiscard]] std::vector<std::string> build_environment(const EnvironmentInputs& inputs);

/// USER: the policy's name or number, `sandbox` when it has none.
[[nodiscard]] std::string user_of(const std::optional<std::string>& run_as_user);
/// HOME: the work directory; else `/sandbox`, or for a named user the account's home (`passwd` text of the image), or /home/<name>.
[[nodiscard]] std::string home_of(const std::optional<std::string>& workdir, const std::optional<std::string>& run_as_user,
                                  std::string_view passwd);
/// The image's PATH with the sbin directories appended where they lack; the default where the image has none.
[[nodiscard]] std::string path_of(const boundary::Environment& image, const boundary::Environment& user);

/// A field of the account file: uid and home of `name`. Lines over 8 KiB and entries without 7 fields are no entries.
struct Account {
  std::uint32_t uid = 0;
  std::string home;
};
[[nodiscard]] std::optional<Account> find_account(std::string_view passwd, std::string_view name);

/// Whether a variable never reaches a workload process, from whatever layer.
[[nodiscard]] bool is_stripped(std::string_view name);

}  // namespace openshell::sandbox
