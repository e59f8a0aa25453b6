#include "policy/rego/compiler.hpp"

#include "policy/rego/call_check.hpp"
#include "policy/rego/codegen.hpp"
#include "policy/rego/resolve.hpp"
#include "policy/rego/rule_tree.hpp"
#include "policy/text.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

using Asks = std::map<const RuleGroup*, std::set<const RuleGroup*>>;

/// The way from a group back to itself, or nothing.
std::vector<const RuleGroup*> circle(const RuleGroup* start, const Asks& asks) {
  std::map<const RuleGroup*, const RuleGroup*> from;
  std::deque<const RuleGroup*> queue = {start};
  while (!queue.empty()) {
    const auto* group = queue.front();
    queue.pop_front();
    const auto found = asks.find(group);
    if (found == asks.end()) continue;
    for (const auto* next : found->second) {
      if (next == start) {
        std::vector<const RuleGroup*> way = {start};
        for (const auto* at = group; at != start; at = from.at(at)) way.push_back(at);
        way.push_back(start);
        std::reverse(way.begin(), way.end());
        return way;
      }
      if (from.emplace(next, group).second) queue.push_back(next);
    }
  }
  return {};
}

/// Groups on some circle: strongly connected parts of more than one group, and groups that ask themselves (Tarjan, without recursion).
class Circles {
 public:
  explicit Circles(const Asks& asks) : asks_(asks) {
    for (const auto& [group, next] : asks) {
      if (!number_.contains(group)) visit(group);
    }
  }
  std::set<const RuleGroup*> found;

 private:
  struct Frame {
    const RuleGroup* group;
    std::set<const RuleGroup*>::const_iterator next, end;
  };

  void enter(const RuleGroup* group, std::vector<Frame>& frames) {
    static const std::set<const RuleGroup*> kNone;
    number_[group] = low_[group] = ++count_;
    stack_.push_back(group);
    on_stack_.insert(group);
    const auto asked = asks_.find(group);
    const auto& next = asked == asks_.end() ? kNone : asked->second;
    if (next.contains(group)) found.insert(group);
    frames.push_back({group, next.begin(), next.end()});
  }

  void visit(const RuleGroup* start) {
    std::vector<Frame> frames;
    enter(start, frames);
    while (!frames.empty()) {
      auto& frame = frames.back();
      if (frame.next != frame.end) {
        const auto* next = *frame.next++;
        if (!number_.contains(next)) {
          enter(next, frames);
        } else if (on_stack_.contains(next)) {
          low_[frame.group] = std::min(low_[frame.group], number_[next]);
        }
        continue;
      }
      const auto* group = frame.group;
      frames.pop_back();
      if (!frames.empty()) low_[frames.back().group] = std::min(low_[frames.back().group], low_[group]);
      if (low_[group] == number_[group]) leave(group);
    }
  }

  void leave(const RuleGroup* root) {
    std::vector<const RuleGroup*> part;
    do {
      part.push_back(stack_.back());
      on_stack_.erase(stack_.back());
      stack_.pop_back();
    } while (part.back() != root);
    if (part.size() > 1) found.insert(part.begin(), part.end());
  }

  const Asks& asks_;
  std::map<const RuleGroup*, unsigned> number_, low_;
  std::vector<const RuleGroup*> stack_;
  std::set<const RuleGroup*> on_stack_;
  unsigned count_ = 0;
};

void check_recursion(const Program& program, const Asks& asks, Errors& errors) {
  const Circles circles(asks);
  for (const auto* group : program.groups) {
    if (!circles.found.contains(group)) continue;
    std::string way;
    for (const auto* at : circle(group, asks)) way += cat(way.empty() ? "" : " -> ", at->name);
    errors.push_back({std::string(code::kRecursion), cat("rule ", group->name, " is recursive: ", way), group->file, group->at});
  }
}

void sort_errors(Errors& errors) {
  std::stable_sort(errors.begin(), errors.end(), [](const Error& a, const Error& b) {
    return std::tie(a.file, a.at.row, a.at.column) < std::tie(b.file, b.at.row, b.at.column);
  });
}

void add_clause(RuleGroup& group, const Rule& rule, std::unique_ptr<Clause> clause) {
  if (rule.is_default) {
    group.fallback = std::move(clause);
  } else {
    group.clauses.push_back(std::move(clause));
  }
}

}  // namespace

std::variant<std::unique_ptr<Program>, Errors> compile(const std::vector<Module>& modules, bool pure) {
  auto program = std::make_unique<Program>();
  Errors errors;
  const auto failed = [&] {
    sort_errors(errors);
    return !errors.empty();
  };
  const auto globals = names_of(modules, errors);
  if (failed()) return errors;
  const auto placed = place_rules(modules, globals, *program, errors);
  if (failed()) return errors;
  std::vector<Rule> resolved;
  resolved.reserve(placed.size());
  for (const auto& one : placed) resolved.push_back(Resolver(*one.globals, one.module->file, one.module->strict, errors).rule(*one.rule));
  if (failed()) return errors;
  for (std::size_t i = 0; i < placed.size(); ++i) CallCheck(program->root, placed[i].module->file, pure, errors).rule(resolved[i]);
  if (failed()) return errors;
  Asks asks;
  Errors type_errors;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    auto& group = *placed[i].group;
    std::unique_ptr<Clause> first;
    auto* slot = &first;
    auto& file = *program->files.emplace_back(std::make_unique<std::string>(placed[i].module->file));
    for (const Rule* rule = &resolved[i]; rule != nullptr; rule = rule->otherwise.get()) {
      std::vector<Term> keys;
      if (rule->name.form == TermForm::reference)
        keys.assign(rule->name.parts.begin() + static_cast<std::ptrdiff_t>(placed[i].fixed), rule->name.parts.end());
      Codegen codegen(program->root, placed[i].module->file, errors);
      *slot = codegen.clause(*rule, keys);
      (*slot)->file = &file;
      asks[&group].insert(codegen.asked.begin(), codegen.asked.end());
      slot = &(*slot)->otherwise;
      type_errors.insert(type_errors.end(), codegen.type_errors.begin(), codegen.type_errors.end());
    }
    add_clause(group, resolved[i], std::move(first));
  }
  if (failed()) return errors;
  check_recursion(*program, asks, errors);
  if (failed()) return errors;
  errors = std::move(type_errors);
  if (failed()) return errors;
  return program;
}

std::variant<Query, Errors> compile_query(const Program& program, const Body& body, bool pure) {
  Errors errors;
  const Globals globals;
  const Body resolved = Resolver(globals, "", false, errors).query(body);
  if (!errors.empty()) return errors;
  CallCheck(program.root, "", pure, errors).body(resolved);
  if (!errors.empty()) return errors;
  Codegen codegen(program.root, "", errors);
  Query query = codegen.query(resolved);
  if (!errors.empty()) return errors;
  if (!codegen.type_errors.empty()) return codegen.type_errors;
  return query;
}

}  // namespace openshell::policy::rego
