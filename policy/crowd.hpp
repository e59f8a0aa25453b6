// Many endpoints on one host and port: who may use which of them is found by the program instead of asked of every rule, and which of them
// a request concerns by its path. Immutable after finish(), any thread; finding allocates nothing. Internal to the matcher.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "policy/glob.hpp"
#include "policy/matcher.hpp"
#include "policy/path_index.hpp"

namespace openshell::policy {

/// Endpoints of one place from which on they are indexed; fewer are looked at one after the other.
inline constexpr std::size_t kCrowdedFrom = 8;
/// Entries of all such indexes of one policy. Places beyond are looked at endpoint by endpoint.
inline constexpr std::size_t kMaxCrowdEntries = 1'000'000;

/// Which of many endpoints, by their position, a request's path can concern at all.
class RequestIndex {
 public:
  explicit RequestIndex(std::span<const Endpoint* const> endpoints);

  /// The lowest position for which `hit(endpoint)` among those that may have a rule for the path; npos: none.
  template <class Hit>
  [[nodiscard]] std::size_t first_allowing(std::string_view path, Hit&& hit) const {
    return first(allowing_, path, hit);
  }
  template <class Hit>
  [[nodiscard]] std::size_t first_denying(std::string_view path, Hit&& hit) const {
    return first(denying_, path, hit);
  }
  /// The endpoint that decides requests of this path.
  [[nodiscard]] const Endpoint* deciding(std::string_view path) const;

  static constexpr std::size_t npos = SIZE_MAX;

 private:
  template <class Hit>
  std::size_t first(const PathIndex& index, std::string_view path, Hit& hit) const {
    std::size_t best = npos;
    index.candidates(path, [&](const std::vector<std::uint32_t>& items) {
      for (const auto item : items) {
        if (item >= best) return;
        if (!hit(*endpoints_[item])) continue;
        best = item;
        return;
      }
    });
    return best;
  }

  std::span<const Endpoint* const> endpoints_;
  PathIndex allowing_, denying_;
  std::vector<const Endpoint*> by_request_rank_;  // the first that covers a path decides
  PathIndex covering_;                            // positions in it
};

/// Endpoints that one program gets, in the order of deciding, and what follows from all of them.
struct EndpointList {
  std::vector<const Endpoint*> endpoints;
  std::uint32_t first_rule = UINT32_MAX;
  bool exact_declared_host = false;
  const Endpoint* inspecting = nullptr;    ///< the first that does
  std::unique_ptr<RequestIndex> requests;  ///< null: they are few

  void add(const Endpoint& endpoint, std::uint32_t rule);
  void finish();
};

class Crowd {
 public:
  /// Endpoints in the order of deciding; each rule's programs by number and by pattern.
  void add(const Endpoint& endpoint, std::uint32_t rule, std::span<const std::uint32_t> plain, std::span<const Glob> patterns);
  void finish();

  /// Calls `use(const EndpointList&)` with what the program of this number and path gets.
  template <class Use>
  void of(std::uint32_t number, std::string_view path, Use&& use) const {
    if (const auto found = by_number_.find(number); found != by_number_.end()) use(found->second);
    index_.candidates(path, [&](const std::vector<std::uint32_t>& items) {
      for (const auto item : items) {
        if (patterns_[item].glob->matches(path)) use(patterns_[item].list);
      }
    });
  }
  [[nodiscard]] const EndpointList& everyone() const noexcept { return everyone_; }

 private:
  struct Pattern {
    const Glob* glob;
    EndpointList list;
  };
  absl::flat_hash_map<std::uint32_t, EndpointList> by_number_;
  std::vector<Pattern> patterns_;                               // one for each rule and pattern
  absl::flat_hash_map<const Glob*, std::uint32_t> pattern_of_;  // while it is built
  PathIndex index_;
  EndpointList everyone_;
};

}  // namespace openshell::policy
