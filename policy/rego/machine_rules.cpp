// Rules and functions.
#include "policy/rego/machine.hpp"
#include "policy/text.hpp"

#include <absl/hash/hash.h>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

/// A partial document of more than one level while it grows.
struct Growing {
  std::map<Value, Growing> members;
  std::vector<Value> elements;
  Value leaf;
  bool is_set = false;
};

Value grown(Growing& part) {
  if (part.leaf.is_defined()) return part.leaf;
  if (part.is_set) return Value::set(std::move(part.elements));
  std::vector<Member> members;
  for (auto& [key, below] : part.members) members.push_back({key, grown(below)});
  return Value::sorted_object(std::move(members));
}

constexpr std::string_view kKeysTwice = "object keys must be unique";

}  // namespace

std::size_t Machine::CallHash::of(const RuleGroup* group, std::span<const Value> arguments) {
  std::size_t sum = absl::HashOf(group);
  for (const auto& argument : arguments) sum = absl::HashOf(sum, argument.hash());
  return sum;
}

const Machine::Mock* Machine::mock(const void* function) const {
  if (world_->mocks.empty()) return nullptr;
  const auto found = world_->mocks.find(function);
  return found == world_->mocks.end() ? nullptr : &found->second;
}

Value Machine::rule(const RuleGroup& group) {
  World* const world = world_;
  if (world->documents[group.index].done) return world->documents[group.index].value;
  if (!charge(group.at)) return {};
  if (++depth_ > kMaxCallDepth) {
    fail(code::kEvalLimit, group.at, "limit exceeded: rules inside one another");
    --depth_;
    return {};
  }
  Value made;
  switch (group.form) {
    case RuleGroup::Form::complete:
      made = complete(group);
      break;
    case RuleGroup::Form::set:
      made = partial_set(group);
      break;
    case RuleGroup::Form::object:
      made = partial_object(group);
      break;
    case RuleGroup::Form::function:
      break;
  }
  --depth_;
  if (failed_) return {};
  auto& known = world->documents[group.index];
  known.done = true;
  known.value = made;
  return made;
}

/// The clause, or the first of its else branches that has an answer. False when it failed.
bool Machine::clause_chain(const RuleGroup& group, const Clause& first, std::span<const Value> arguments, Value& result) {
  for (const Clause* clause = &first; clause != nullptr; clause = clause->otherwise.get()) {
    file_ = clause->file;
    Frame frame(*this, clause->slots);
    bool fits = true;
    for (std::size_t i = 0; i < clause->arguments.size() && fits; ++i) fits = match(clause->arguments[i], arguments[i], frame.slots);
    if (failed_) return false;
    if (!fits) continue;
    bool any = false;
    steps(clause->plan, 0, frame.slots, [&] {
      Value given = value(clause->value, frame.slots);
      if (!given.is_defined()) return failed_ ? Flow::stop : Flow::on;
      any = true;
      if (!result.is_defined()) {
        result = std::move(given);
      } else if (!(result == given)) {
        return fail(code::kConflict, clause->at,
                    group.form == RuleGroup::Form::function ? cat("functions must not produce multiple outputs for same inputs")
                                                            : cat("complete rules must not produce multiple outputs"));
      }
      return clause->constant ? Flow::stop : Flow::on;
    });
    if (failed_) return false;
    if (any) return true;
  }
  return true;
}

Value Machine::complete(const RuleGroup& group) {
  Value result;
  for (const auto& clause : group.clauses) {
    if (!clause_chain(group, *clause, {}, result)) return {};
  }
  if (!result.is_defined() && group.fallback) clause_chain(group, *group.fallback, {}, result);
  return failed_ ? Value() : result;
}

Value Machine::partial_set(const RuleGroup& group) {
  std::vector<Value> elements;
  for (const auto& clause : group.clauses) {
    file_ = clause->file;
    Frame frame(*this, clause->slots);
    steps(clause->plan, 0, frame.slots, [&] {
      Value element = value(clause->value, frame.slots);
      if (!element.is_defined()) return failed_ ? Flow::stop : Flow::on;
      elements.push_back(std::move(element));
      return fits(elements.size(), clause->at) ? Flow::on : Flow::stop;
    });
    if (failed_) return {};
  }
  return Value::set(std::move(elements));
}

Value Machine::partial_object(const RuleGroup& group) {
  std::vector<Member> members;  // where all have one key: the common case
  Growing root;
  bool flat = true;
  for (const auto& clause : group.clauses) flat = flat && clause->keys.size() == 1 && !clause->is_set;
  std::size_t count = 0;
  const auto put = [&](const Clause& clause, Value* frame, Value given) {
    Growing* part = &root;
    for (const auto& expression : clause.keys) {
      Value key = value(expression, frame);
      if (!key.is_defined()) return failed_ ? Flow::stop : Flow::on;
      part = &part->members[key];
      if (part->leaf.is_defined() && &expression != &clause.keys.back()) return fail(code::kConflict, clause.at, std::string(kKeysTwice));
    }
    if (clause.is_set) {
      if (part->leaf.is_defined() || !part->members.empty()) return fail(code::kConflict, clause.at, std::string(kKeysTwice));
      part->is_set = true;
      if (given.is_defined()) part->elements.push_back(std::move(given));
      return Flow::on;
    }
    if (part->is_set || !part->members.empty() || (part->leaf.is_defined() && !(part->leaf == given))) {
      return fail(code::kConflict, clause.at, std::string(kKeysTwice));
    }
    part->leaf = std::move(given);
    return Flow::on;
  };
  for (const auto& first : group.clauses) {
    for (const Clause* clause = first.get(); clause != nullptr; clause = clause->otherwise.get()) {
      file_ = clause->file;
      Frame frame(*this, clause->slots);
      bool any = false;
      steps(clause->plan, 0, frame.slots, [&] {
        Value given = value(clause->value, frame.slots);
        if (!given.is_defined()) return failed_ ? Flow::stop : Flow::on;
        any = true;
        if (!fits(++count, clause->at)) return Flow::stop;
        if (!flat) return put(*clause, frame.slots, std::move(given));
        Value key = value(clause->keys[0], frame.slots);
        if (!key.is_defined()) return failed_ ? Flow::stop : Flow::on;
        members.push_back({std::move(key), std::move(given)});
        return Flow::on;
      });
      if (failed_) return {};
      if (any) break;
    }
  }
  return flat ? unique_members(std::move(members), group.at, kKeysTwice) : grown(root);
}

Value Machine::call(const RuleGroup& group, std::span<const Value> arguments, Position at) {
  if (const auto* mock = this->mock(&group)) {
    if (mock->builtin != nullptr) return call_builtin(*mock->builtin, arguments, at);
    if (mock->group == nullptr) return mock->value;
    return evaluate_function(*mock->group, arguments, at);
  }
  World* const world = world_;
  if (const auto found = world->calls.find(CallView{&group, arguments}); found != world->calls.end()) return found->second;
  Value made = evaluate_function(group, arguments, at);
  if (failed_) return {};
  world->calls.emplace(CallKey{&group, {arguments.begin(), arguments.end()}}, made);
  return made;
}

Value Machine::evaluate_function(const RuleGroup& group, std::span<const Value> arguments, Position at) {
  if (!charge(at)) return {};
  if (++depth_ > kMaxCallDepth) {
    fail(code::kEvalLimit, at, "limit exceeded: functions inside one another");
    --depth_;
    return {};
  }
  Value result;
  for (const auto& clause : group.clauses) {
    if (!clause_chain(group, *clause, arguments, result)) break;
  }
  if (!failed_ && !result.is_defined() && group.fallback) clause_chain(group, *group.fallback, arguments, result);
  --depth_;
  return failed_ ? Value() : result;
}

}  // namespace openshell::policy::rego
