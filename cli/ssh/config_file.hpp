// What `sandbox ssh-config` prints and `sandbox connect --editor` installs: a Host block for tools that read OpenSSH's configuration.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace openshell::cli {

/// `openshell-<name>.<workspace>`.
std::string host_alias(std::string_view sandbox, std::string_view workspace);
/// The block, without a blank line at its end.
std::string host_block(std::string_view self, std::string_view gateway, std::string_view sandbox, std::string_view workspace);

/// `config` with `Include "<included>"` before its first Host or Match line; an identical Include elsewhere is taken out first.
std::string with_include(std::string_view config, std::string_view included);
/// `config` with the block of `alias` put in or replaced; every other byte stays.
std::string with_block(std::string_view config, std::string_view alias, std::string_view block);

/// Writes both files, each by rename, with mode 0600: `<home>/.ssh/config` and `<folder>/ssh_config`.
absl::Status install_block(const std::filesystem::path& home, const std::filesystem::path& folder, std::string_view alias,
                           std::string_view block);

}  // namespace openshell::cli
